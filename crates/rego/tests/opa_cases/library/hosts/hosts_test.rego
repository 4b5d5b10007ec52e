package hosts

review(host) = {"object": {"spec": {"rules": [{"host": host}, {"host": "a.shop.test"}]}}}

test_allowed_host {
	violations := violation with input as {"review": review("b.shop.test"), "parameters": {"hosts": ["*.shop.test"]}}
	count(violations) == 0
}

test_other_host {
	violations := violation with input as {"review": review("a.b.shop.test"), "parameters": {"hosts": ["*.shop.test"]}}
	violations == {{"msg": "host <a.b.shop.test> is not one of [\"*.shop.test\"]"}}
}

test_fails {
	violations := violation with input as {"review": review("other.test"), "parameters": {"hosts": []}}
	count(violations) == 1
}
