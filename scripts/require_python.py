"""Say in one line when the Python is too old (this file must run on old ones)."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        "Python 3.11 or newer is needed, this is {}.{}; name another: PYTHON=python3.12 make setup".format(
            *sys.version_info[:2]
        )
    )
