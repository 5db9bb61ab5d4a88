"""By their names: variables whose values are secrets. One list, for what commands are not given and for what is not
recorded (M-13, S-11)."""

import re

SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|_AUTH$|_PAT$|^PGPASS|DSN$|^TREADLE_STORE$",
    re.IGNORECASE,
)
