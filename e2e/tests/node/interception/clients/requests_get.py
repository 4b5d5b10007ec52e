import sys

sys.path.insert(0, "/python-packages")
import requests

response = requests.post("https://echo.test/echo", data={"of": "requests"}, timeout=60)
response.raise_for_status()
print(response.json()["body"])
