package windows

timestamp(ns) = concat("T", [
	sprintf("%04d-%02d-%02d", time.date(ns)),
	sprintf("%02d:%02d:%02dZ", time.clock(ns)),
])

status := {"conditions": array.concat(
	[condition |
		not count(children) == count(input.children[_])
		condition := {
			"type": "effective",
			"status": ["False", "True"][count(children)],
			"lastTransitionTime": timestamp(time.now_ns()),
		}
	],
	[known | known := input.parent.status.conditions[_]],
)}

children[child] {
	time.now_ns() > time.parse_rfc3339_ns(input.parent.spec.validFrom)
	time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.validUntil)
	child := {
		"apiVersion": input.controller.spec.childResources[0].apiVersion,
		"kind": split({kind | input.children[kind]}[_], ".")[0],
		"metadata": {"name": input.parent.metadata.name},
		"data": {"value": input.parent.spec.value},
	}
}
