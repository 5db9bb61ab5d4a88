def read_v1(text):
    return text.split(';')
