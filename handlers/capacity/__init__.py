"""Admission: the document of the runs that hold or await nodes, and activities that change it."""
