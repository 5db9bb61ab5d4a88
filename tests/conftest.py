"""What holds for all tests. Time is no criterion: a loaded machine is slow, and that is no fault of the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("treadle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("treadle")
