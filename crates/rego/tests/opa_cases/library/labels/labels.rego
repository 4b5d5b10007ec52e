package labels

missing contains label if {
	some label in input.parameters.labels
	not input.review.object.metadata.labels[label]
}

violation contains {"msg": msg} if {
	count(missing) > 0
	msg := sprintf("labels are missing: %v", [missing])
}
