
# bash takes `--flag=value` for three words. They are one for who is asked, and the answer is what follows the last `=`.
_caldera_complete() {
    local -a joined=()
    local at word glued="" count=0 index=0
    for ((at = 0; at < ${#COMP_WORDS[@]}; at++)); do
        word="${COMP_WORDS[at]}"
        if [[ $count -gt 1 && ( "$word" == "=" || -n "$glued" ) ]]; then
            joined[count - 1]="${joined[count - 1]}$word"
        else
            joined[count]="$word"
            count=$((count + 1))
        fi
        glued=""
        [[ "$word" == "=" ]] && glued=yes
        [[ $at -eq $COMP_CWORD ]] && index=$((count - 1))
    done
    local current="${joined[index]}" COMP_CWORD=$index
    local -a COMP_WORDS=("${joined[@]}")
    _clap_complete_caldera "$1" "$current" "$3"
    if [[ "$current" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then
        local before="${current%"${current##*=}"}"
        for at in "${!COMPREPLY[@]}"; do
            COMPREPLY[at]="${COMPREPLY[at]#"$before"}"
        done
    fi
}
