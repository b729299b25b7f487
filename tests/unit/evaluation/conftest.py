from evaluation_fixtures import *  # noqa: F403 - fixtures
