import csv

totals = {}
with open("data.csv", newline="") as file:
    for number, row in enumerate(csv.reader(file), 1):
        try:
            totals[row[1]] = totals.get(row[1], 0) + int(row[2])
        except ValueError as error:
            raise SystemExit(f"data.csv, line {number}: {error}")
for name, total in sorted(totals.items()):
    print(name, total)
