package p

import data.lib
import input.absent as absent_import

s := {1, 2}

words := ["a", "b"]

f(x) := x

yes(x) if x == x

no(x) := false if x == x

missing_rule if input.never

true_rule := true

name := input.name

missing_name := input.never

partial contains x if some x in input.list

permitted if not input.x
