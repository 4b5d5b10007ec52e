# A binding that exists from validFrom until validUntil, both exclusive. Rego as it was before OPA 1.0: the shape
# that such policies have had since MetaController asked OPA for them.
package controller

stamp(ns) = text {
	[year, month, day] := time.date(ns)
	[hour, minute, second] := time.clock(ns)
	text := sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", [year, month, day, hour, minute, second])
}

kind = split({name | input.children[name]}[_], ".")[0]

children[child] {
	time.parse_rfc3339_ns(input.parent.validFrom) < time.now_ns()
	time.parse_rfc3339_ns(input.parent.validUntil) > time.now_ns()
	child := {
		"apiVersion": input.controller.spec.childResources[0].apiVersion,
		"kind": kind,
		"metadata": {"name": input.parent.metadata.name},
		"roleRef": input.parent.roleRef,
		"subjects": input.parent.subjects,
	}
}

changed {
	count(children) != count(input.children[_])
}

status := {"conditions": array.concat(
	[condition |
		changed
		condition := {
			"type": "effective",
			"status": ["False", "True"][count(children)],
			"lastTransitionTime": stamp(time.now_ns()),
		}
	],
	[condition | condition := input.parent.status.conditions[_]],
)}
