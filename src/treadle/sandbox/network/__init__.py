"""What a command may reach: the proxy outside its sandbox. The proxy is a process of its own, which knows the standard
library and `treadle.host_patterns` alone."""
