from evaluation_fixtures import *  # noqa: F403 - fixtures
from reporting_fixtures import *  # noqa: F403
