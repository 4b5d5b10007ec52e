package hosts

violation[{"msg": msg}] {
	host := input.review.object.spec.rules[_].host
	not allowed(host)
	msg := sprintf("host <%v> is not one of %v", [host, input.parameters.hosts])
}

allowed(host) {
	glob.match(input.parameters.hosts[_], ["."], host)
}
