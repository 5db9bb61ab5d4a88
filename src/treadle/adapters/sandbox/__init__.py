"""Confinement of commands by the operating system, and the supervisors under which they run."""
