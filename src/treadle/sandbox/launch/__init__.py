"""Small programs that prepare a command from the inside of its own process. They know the standard library and
`treadle.file_system` alone, and import as little as they can: a command waits for them. What they are to do comes as
one word of their command line; nothing is decided here."""
