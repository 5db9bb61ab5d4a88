"""What `treadle serve` carries, how soon a run goes on, what a store takes. `python -m bench.server`."""
