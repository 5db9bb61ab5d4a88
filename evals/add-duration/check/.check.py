from duration import readable

cases = {0: "0 s", 59: "59 s", 60: "1 min 00 s", 3599: "59 min 59 s", 3600: "1 h 00 min 00 s", 3725: "1 h 02 min 05 s", 90000: "25 h 00 min 00 s"}
assert {n: readable(n) for n in cases} == cases
try:
    readable(-1)
except ValueError:
    pass
else:
    raise SystemExit("no ValueError")
