"""Answers to the exercises, right and wrong, that the tests hand to the checkers.

One file a chapter. OTHERS holds right answers that are written differently from the solution. WRONG
holds wrong ones by the mistake that they must be named as, and under None some without a name.
Mistakes of functions need none here: each has its own wrong function.
"""
