// Not a module: a page that was opened as a file runs this, and nothing else.

if (location.protocol === "file:") {
  const told = document.createElement("p"), command = document.createElement("code");
  told.id = "unserved";
  command.textContent = "python -m http.server";
  told.append("Browsers do not run this page as a file. Serve its folder by any web server: call ", command,
    " in it, and open localhost:8000.");
  document.querySelector("main").prepend(told);
}
