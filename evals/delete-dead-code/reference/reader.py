def read_v2(text):
    return text.split(",")


READERS = {2: read_v2}


def read(text, version=2):
    if version not in READERS:
        raise ValueError(f"version {version} is not known")
    return READERS[version](text)
