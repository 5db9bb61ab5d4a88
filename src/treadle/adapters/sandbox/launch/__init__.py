"""Small programs that prepare a command inside its own process. They use the standard library and
`treadle.base.file_system` alone, and import as little as possible: a command waits for them. Their instructions come
as one argument of their command line; nothing is decided here."""
