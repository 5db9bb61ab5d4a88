"""The proxy outside a sandbox, the only endpoint that its command may reach. The proxy is a process of its own, which
uses the standard library and `treadle.base.host_patterns` alone."""
