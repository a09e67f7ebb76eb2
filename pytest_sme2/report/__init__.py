"""What people and programs read: terminal, Markdown, HTML, CSV, JSON, traces, failure messages.

Reports only show what they are given: nothing is measured or judged here.
"""
