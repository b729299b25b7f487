from reporting_fixtures import *  # noqa: F403 - fixtures
