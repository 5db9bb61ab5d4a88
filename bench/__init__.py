"""Measurements of Treadle beside hand-written floors and other libraries, against one fake provider. `make bench`."""
