"""The HTTP/1.1 client of Treadle: `client` sends requests and keeps connections, `route` finds the way to a server,
`connection` exchanges bytes. Importing this package loads none of them (decision 0021)."""
