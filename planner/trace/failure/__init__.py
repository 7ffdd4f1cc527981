"""What a person is told: of what failed, and of what was traced all the same.

explain_failure   an error of the model's own         failure_text, advice; time_limit
notices           what to know of a graph
"""
