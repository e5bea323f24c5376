"""What the experiments are asked, one file for some chapters: figures of one seed, and bounds.

A study is a module with SEEDS; EXPERIMENTS, for each name a function of a seed that returns
figures by label; and BOUNDS, for each name what the chapters assert of some of these figures,
the others being only shown. `qkvlib.book.experiments.margins` measures it into a table of the
same name.
"""
