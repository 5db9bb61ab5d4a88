import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Hello, World 2"), "hello-world-2")

    def test_no_hyphens_at_the_ends_and_none_doubled(self):
        self.assertEqual(slug("  --A  - b!! "), "a-b")

    def test_nothing_left(self):
        self.assertEqual(slug("!?"), "untitled")
        self.assertEqual(slug(""), "untitled")

    def test_cut_after_whole_words(self):
        self.assertEqual(slug("aaaa bbbb cccc", 9), "aaaa-bbbb")
        self.assertEqual(slug("aaaa bbbb cccc", 8), "aaaa")

    def test_a_long_first_word(self):
        self.assertEqual(slug("abcdefgh ij", 4), "abcdefgh")

    def test_longest(self):
        self.assertEqual(len(slug("ab " * 40)), 38)


if __name__ == "__main__":
    unittest.main()
