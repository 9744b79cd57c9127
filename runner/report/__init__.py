"""The questions of the assignment, answered from the rows of a results file.

    report = make_report(Rows(path, Scope(machine="NVIDIA H200 · node1")))
    print(render_markdown(report))

`questions` declares them. `document` says what an answer is, `markdown` and `latex` write it. The page *Report* shows
the same with charts, and `html` saves that page as a file. Limits: English; one machine a report.
"""
