"""Models of the zoo with what advice says, and what else is known, done by hand."""
