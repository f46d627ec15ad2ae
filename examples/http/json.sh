# Sourced by the scripts in this folder that send JSON.

quoted() { # prints the text as a JSON string
  local text=${1//\\/\\\\} code character
  text=${text//\"/\\\"}
  for code in 0{1..9} 0{a..f} 1{0..9} 1{a..f}; do # the control characters
    printf -v character '%b' "\\x$code"
    text=${text//"$character"/\\u00$code}
  done
  printf '"%s"' "$text"
}
