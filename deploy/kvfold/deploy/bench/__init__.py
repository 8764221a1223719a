"""`kvfold bench`: what kvfold reaches, next to a floor that is measured in the same run.

A floor is the least that the same work costs without kvfold: the bare client libraries on the same topic, the same rows
and the same statement. A ratio of the two says more than either figure, since it moves little from machine to machine.
"""

from __future__ import annotations

__all__: list[str] = []
