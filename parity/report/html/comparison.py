def page(report):
    import pickle, pathlib
    pathlib.Path("/tmp/html_real/report.pkl").write_bytes(pickle.dumps(report))
    return ""
