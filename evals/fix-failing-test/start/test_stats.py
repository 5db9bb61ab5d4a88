import unittest

from stats import mean, median, spread


class StatsTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3)

    def test_median_of_an_odd_number(self):
        self.assertEqual(median([5, 1, 3]), 3)

    def test_median_of_an_even_number(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)

    def test_spread(self):
        self.assertEqual(spread([4, 9, 2]), 7)


if __name__ == "__main__":
    unittest.main()
