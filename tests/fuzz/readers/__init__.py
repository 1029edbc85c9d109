"""Differential fuzzing of the readers of model files: our reader and the library's own loader must agree.

A case takes a model file of the corpus, changes one field or two, and loads the file in two processes: with
our reader, and with the library that wrote the file. Both refuse the file, or their margins agree on rows at
and next to the thresholds. We may refuse a file that the library accepts, with a documented error;
``--stricter`` lists such files. All else is a finding, and so is a file for which our reader takes more time
or resident memory than ``README.md`` of the fuzz targets says, measured from outside.
"""
