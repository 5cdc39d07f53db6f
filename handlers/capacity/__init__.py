"""Which run holds which nodes: the document of admission, and the activities that change it."""
