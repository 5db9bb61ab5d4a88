from lib.text.strings import shorten

print(shorten('hello', 10))
