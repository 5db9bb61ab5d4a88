"""Settings of the program."""


def database_url():
    return "postgres://localhost/test"
