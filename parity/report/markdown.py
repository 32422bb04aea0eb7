def comparison(report):
    return ""
