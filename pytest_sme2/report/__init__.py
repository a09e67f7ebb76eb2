"""What people and other programs read: tables, findings in words, files of a run directory."""
