"""Mathematical answers, compared by math-verify."""
