"""A model becomes a program: finding models, exporting them to ``.pte``, keeping the exports.

Only a child process of this folder imports torch. What a program does when it runs is not known
here.
"""
