const response = await fetch("https://echo.test/echo", { method: "POST", body: "of fetch" });
if (!response.ok) {
  throw new Error(`${response.status}`);
}
console.log((await response.json()).body);
