from legacy import read_v1


def read_v2(text):
    return text.split(",")


READERS = {1: read_v1, 2: read_v2}


def read(text, version=2):
    if version not in READERS:
        raise ValueError(f"version {version} is not known")
    return READERS[version](text)
