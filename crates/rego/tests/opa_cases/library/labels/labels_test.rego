package labels_test

import data.labels

parameters := {"labels": ["team", "stage"]}

object(of) := {"object": {"metadata": {"labels": of}}}

test_all_labels_are_there if {
	of := {"team": "shop", "stage": "test"}
	count(labels.violation) == 0 with input as {"parameters": parameters, "review": object(of)}
}

test_a_label_is_missing if {
	asked := {"parameters": parameters, "review": object({"team": "shop"})}
	labels.missing == {"stage"} with input as asked
	some violation in labels.violation with input as asked
	violation.msg == `labels are missing: {"stage"}`
}

test_without_labels_fails if {
	count(labels.violation) == 0 with input as {"parameters": parameters, "review": {"object": {}}}
}

todo_test_values_are_checked if {
	false
}
