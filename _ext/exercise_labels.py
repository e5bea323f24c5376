"""A label for each exercise: {ref}`E3.4 <e3-4>` links to the heading that begins with E3.4.

A label written above the heading would do the same, but a notebook shows it to its reader.
"""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

EXERCISE = re.compile(r"E(\d)\.(\d+) ")


def setup(app):
    app.add_transform(ExerciseLabels)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class ExerciseLabels(SphinxTransform):
    default_priority = 500

    def apply(self):
        for section in self.document.findall(nodes.section):
            found = EXERCISE.match(section[0].astext())
            if found:
                self.label(section, "e{}-{}".format(*found.groups()))

    def label(self, section, name):
        section["ids"].append(name)
        section["names"].append(name)
        self.document.ids[name] = section
        self.document.nameids[name] = name
        self.document.nametypes[name] = True  # written on purpose, and so a label
