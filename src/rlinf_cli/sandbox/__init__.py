"""Code that may hang, crash, print without end or leave processes behind, in processes that can be ended for certain."""
